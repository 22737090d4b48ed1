"""Readers of the files of load generators for language-model servers; what their names mean is in plan.token_tools."""
