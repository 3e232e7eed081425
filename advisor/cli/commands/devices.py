"""List the CPU and GPUs of this machine."""

import click

from advisor.cli.command import Command
from advisor.cli.flags import option_flags
from advisor.cli.output import Output, table_or_json_flag, write_answer
from advisor.cli.terminal import progress
from advisor.errors import ExitCode
from advisor.records.options import Options


@click.command(
    "devices",
    cls=Command,
    params=[
        click.Option(["--all", "with_others"], is_flag=True, help="also list every device that has a profile"),
        *option_flags(only=("profiles", "prices")),
        table_or_json_flag(),
    ],
)
def command(output: Output, with_others: bool, options: Options) -> int:
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
    from advisor.answers.checkup import take_inventory
    from advisor.question.from_source import catalog_of
    from advisor.report.devices import inventory_content

    with progress("inspecting this machine"):
        inventory = take_inventory(catalog_of(options), with_others=with_others)
    write_answer(inventory, output, inventory_content)
    return ExitCode.ANSWER
