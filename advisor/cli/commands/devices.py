"""`advise devices`: list the devices of this machine with their profiles."""

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.lazy import LazyCommand
from advisor.cli.progress import progress
from advisor.errors import ExitCode

if TYPE_CHECKING:
    from advisor.cli.output import Output

_OPTION_FLAGS = ("profiles", "prices")


def _flags() -> list[click.Parameter]:
    from advisor.cli.flags import option_flags
    from advisor.cli.output import output_flag

    return [
        click.Option(["--all", "with_others"], is_flag=True, help="also list every device that has a profile"),
        *option_flags(only=_OPTION_FLAGS),
        output_flag({"table": ".txt", "json": ".json"}, help_text="table, or json, to stdout; or a file (.txt .json)"),
    ]


@click.command("devices", cls=LazyCommand, make_flags=_flags, short_help="List the CPU and GPUs of this machine.")
def command(output: "Output", with_others: bool, **params: Any) -> int:
    """List the CPU and GPUs of this machine, with their profiles and calibrations.

    The list shows what this process may use, not what is installed: it follows the affinity mask, the CPU quota and
    memory limit of the cgroup, and CUDA_VISIBLE_DEVICES. GPUs are found with NVML if nvidia-ml-py is installed,
    otherwise with nvidia-smi, and with torch. The command measures nothing and writes nothing.

    \b
    Examples:
      advise devices
      advise devices --all
      advise devices -o json
    """
    from advisor.answers.device_list import take_inventory
    from advisor.cli.flags import options_from
    from advisor.cli.output import view_of, write
    from advisor.question.from_source import catalog_of

    options = options_from(params)
    with progress("inspecting this machine"):
        inventory = take_inventory(catalog_of(options), with_others=with_others)
    if output.format == "json":
        from advisor.report.as_json import to_json

        write(to_json(inventory), output)
    else:
        from advisor.report.inventory import inventory_content
        from advisor.report.terminal import to_text

        write(to_text(inventory_content(inventory), view_of(output, top=options.top)), output)
    return ExitCode.ANSWER
