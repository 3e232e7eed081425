"""`advise serve`: settings in, the answers of `advise` over HTTP until it is told to end."""

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.lazy import LazyCommand
from advisor.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def _flags() -> list[click.Parameter]:
    from pathlib import Path

    from advisor import units
    from advisor.cli.flags import option_flags
    from advisor.records.flag_values import reader

    return [
        click.Option(["--host"], default="127.0.0.1", show_default=True, metavar="ADDRESS", help="where to listen"),
        click.Option(
            ["--port"], type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 is any that is free"
        ),
        click.Option(
            ["--token-file"],
            type=Path,
            metavar="FILE",
            help="its word is asked for as Authorization: Bearer; needed where --host is not this machine alone",
        ),
        click.Option(
            ["--allow-host"],
            multiple=True,
            metavar="NAME",
            help="a further name by which the service may be asked, as it stands in its URL",
        ),
        click.Option(
            ["--workers"],
            type=click.IntRange(1, 256),
            metavar="N",
            help="processes that compute (default: one for each core)",
        ),
        click.Option(
            ["--time-limit"],
            type=reader("--time-limit", units.parse_duration_s),
            default="10",
            show_default=True,
            metavar="TIME",
            help="the most that one answer may take",
        ),
        *option_flags(only=("profiles", "prices")),
    ]


@click.command("serve", cls=LazyCommand, make_flags=_flags, short_help="Answer over HTTP.")
def command(
    host: str,
    port: int,
    token_file: "Path | None",
    allow_host: tuple[str, ...],
    workers: int | None,
    time_limit: float,
    profiles: str | None,
    prices: tuple[str, ...],
    **_: Any,
) -> int:
    """Answer what the commands answer over HTTP, for programs without torch: POST a workload, read JSON.

    A workload is what "advise profile -o workload.json" writes. Nothing that is sent is run, and no path in it is
    opened. Without flags only this machine can ask. Files of prices that change are read again at once; where an edit
    is wrong the old prices stay in force, and /healthz and the log say so.

    \b
    Examples:
      advise serve
      advise serve --port 9000 --prices negotiated.yaml
      advise serve --host 10.0.0.5 --token-file token \\
        --allow-host advisor.internal
      curl -d "{\\"workload\\": $(cat workload.json)}" \\
        -H "Content-Type: application/json" http://127.0.0.1:8000/v1/recommend
    """
    from pathlib import Path

    from advisor.serve.log import configure_log
    from advisor.serve.settings import checked_settings

    try:
        from advisor.serve.run import serve
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{error.name} is not installed",
            hint="the service needs its extra: pip install fastapi prometheus-client uvicorn",
        ) from error

    settings = checked_settings(
        host=host,
        port=port,
        token_file=token_file,
        allowed_hosts=allow_host,
        worker_count=workers,
        time_limit_s=time_limit,
        profiles=Path(profiles) if profiles else None,
        prices=tuple(map(Path, prices)),
    )
    configure_log()
    serve(settings)
    return ExitCode.ANSWER
