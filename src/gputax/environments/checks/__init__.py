"""What the doctor looks at: each check is a pure function from facts to findings."""
