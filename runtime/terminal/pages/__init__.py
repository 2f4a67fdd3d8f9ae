"""Pages for readers: each is one self-contained HTML file without network access; scripts are only
needed to fold or filter. The reports of trainings and benches and the view of a run use `page` (the
shell and its style), `templates` (Jinja2), `svg` (drawings) and `curves` (lines over steps)."""
