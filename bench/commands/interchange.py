"""`bench import` and `bench export`: results in the formats of other evaluation tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from loopline.runtime.program import add_command

if TYPE_CHECKING:
    from loopline.bench.commands.options import ExportOptions, ImportOptions


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, import_file, "bench.commands.options:ImportOptions", name="import")
    add_command(app, export, "bench.commands.options:ExportOptions")


def import_file(options: ImportOptions) -> None:
    """Import an inspect log, or lm-eval samples. Writes an output directory, which `bench report`
    and `bench compare` read. Samples from several epochs are attempts at one question. The line of
    JSON lists the directory, questions, samples, the scorer, and anything left out."""
    from loopline.bench.interchange.imported import import_evaluation, read_evaluation
    from loopline.bench.report.terminal import print_report
    from loopline.bench.report.writer import write_reports
    from loopline.bench.session import command_words, default_output

    evaluation = read_evaluation(options.file)
    imported = import_evaluation(evaluation, options.scorer, command_words())
    directory = imported.write(options.output or default_output("imported"))
    facts = write_reports(directory)
    for notice in imported.notices:
        typer.echo(notice, err=True)
    if options.as_json:
        manifest = imported.manifest
        line = {
            "output": str(directory.path),
            "questions": len({str(item.about["attempt_of"]) for item in manifest.items}),
            "samples": len(manifest.items),
            "scorer": manifest.reference["scorer"],
            "unscored": manifest.reference["unscored"],
        }
        print(json.dumps(line))
    else:
        print_report(facts, directory.path)


def export(options: ExportOptions) -> None:
    """Export a benchmark for other tools. inspect: a log for each arm; lm-eval: samples and results
    for each arm; csv: a row for each run; latex: tables for the booktabs package. The line of JSON
    lists the files."""
    from loopline.bench.interchange.exports import export
    from loopline.bench.output import OutputDirectory

    directory = OutputDirectory(options.directory)
    output = options.output or options.directory / "export"
    paths = [str(path) for path in export(directory, options.format, output)]
    print(json.dumps({"files": paths}) if options.as_json else "\n".join(paths))
