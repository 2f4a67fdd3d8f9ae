"""Pages for readers: each one HTML file that needs nothing else, neither network nor, but for what
is folded or filtered, a script. Reports of trainings and benches and the view of a run are made of
`page` (the shell and its style), `templates` (Jinja2), `svg` (drawings) and `curves` (lines over
steps)."""
