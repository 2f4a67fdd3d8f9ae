"""Reports: one set of facts, written as JSON, as a Markdown table and as one HTML file."""
