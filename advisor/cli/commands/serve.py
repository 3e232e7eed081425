"""Answer over HTTP."""

from pathlib import Path

import click

from advisor.cli.command import Command
from advisor.cli.flags import flag, option_flags
from advisor.errors import ExitCode, UsageError
from advisor.records.options import Options
from advisor.units import parse_duration_s

_FILE_HELP = "file with the bearer token that clients must send; required unless --host is this machine only"
_HOST_HELP = "another host name that clients may use in the URL of the service"
_PORT_HELP = "port to listen on; 0 picks a free one"
_WORKER_HELP = "number of worker processes (default: one per core)"


@click.command(
    "serve",
    cls=Command,
    params=[
        flag("--host", "address to listen on", metavar="ADDRESS", default="127.0.0.1"),
        click.Option(["--port"], type=click.IntRange(0, 65535), default=8000, show_default=True, help=_PORT_HELP),
        flag("--token-file", _FILE_HELP, metavar="FILE", read=Path),
        flag("--allow-host", _HOST_HELP, metavar="NAME", multiple=True),
        click.Option(["--workers"], type=click.IntRange(1, 256), metavar="N", help=_WORKER_HELP),
        flag("--time-limit", "timeout for one answer", metavar="TIME", read=parse_duration_s, default="10s"),
        *option_flags(only=("profiles", "prices")),
    ],
)
def command(
    host: str,
    port: int,
    token_file: Path | None,
    allow_host: tuple[str, ...],
    workers: int | None,
    time_limit: float,
    options: Options,
) -> int:
    """Serve the commands over HTTP, for clients without torch: POST a workload, get JSON.

    "advise profile -o workload.json" writes a workload. The service never executes anything that a client sends and
    never opens a path in it. By default, only this machine can reach it. When a price file changes, the service reloads
    it at once. If the file has a mistake, the old prices stay in force, and /healthz and the log report the mistake.

    \b
    Examples:
      advise serve
      advise serve --port 9000 --prices negotiated.yaml
      advise serve --host 10.0.0.5 --token-file token \\
        --allow-host advisor.internal
      (printf '{"workload": '; cat workload.json; printf '}') | curl -d @- \\
        -H "Content-Type: application/json" http://127.0.0.1:8000/v1/recommend
    """
    from advisor.serve.log import configure_log
    from advisor.serve.settings import checked_settings

    try:
        from advisor.serve.run import serve
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{error.name} is not installed",
            hint="the service needs these packages: pip install fastapi prometheus-client uvicorn",
        ) from error

    settings = checked_settings(
        host=host,
        port=port,
        token_file=token_file,
        allowed_hosts=allow_host,
        worker_count=workers,
        time_limit_s=time_limit,
        profiles=Path(options.profiles) if options.profiles else None,
        prices=tuple(map(Path, options.prices)),
    )
    configure_log()
    serve(settings)
    return ExitCode.ANSWER
