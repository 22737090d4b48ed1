"""One report, written for each kind of reader: terminal, Markdown, browser, JSON and CSV."""
