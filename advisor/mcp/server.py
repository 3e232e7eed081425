"""Speaks the Model Context Protocol on stdin and stdout, with its official Python SDK."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
from anyio import to_thread
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    ResourceLink,
    TextContent,
    Tool,
    ToolAnnotations,
)

from advisor import __version__
from advisor.errors import AdvisorError
from advisor.mcp.tools import TOOLS, Settings, ToolRunner, described
from advisor.records.flag_values import with_fields

_INSTRUCTIONS = (
    "Ask before a PyTorch model is trained or served on rented hardware: which CPU or GPU instance does it for the "
    "least money, whether it fits, and why it is slow. Without a job size, costs assume a device that is always busy. "
    "Tell the user the interval and the date of the price with every figure."
)


def serve(settings: Settings) -> None:
    """Answer until stdin closes; raise `AdvisorError` if the user's own files of prices have a mistake."""
    anyio.run(partial(_serve, ToolRunner(settings), may_run=bool(settings.allow_run)))


async def _serve(runner: ToolRunner, *, may_run: bool) -> None:
    one_at_a_time = anyio.CapacityLimiter(1)

    async def list_tools(_context: Any, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_tool(name, may_run=may_run) for name in TOOLS])

    async def call_tool(_context: Any, params: CallToolRequestParams) -> CallToolResult:
        call = partial(_result, runner, params.name, params.arguments or {})
        return await to_thread.run_sync(call, limiter=one_at_a_time)  # so that the client's pings are answered

    server: Server[Any] = Server(
        "device-advisor",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _tool(name: str, *, may_run: bool) -> Tool:
    hints = ToolAnnotations(read_only_hint=not may_run, open_world_hint=False)  # a user's file may do anything
    return Tool(name=name, description=TOOLS[name].about, input_schema=described(name), annotations=hints)


def _result(runner: ToolRunner, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
    try:
        text, file = runner.call(name, arguments)
    except AdvisorError as error:
        said = with_fields(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""))
        return CallToolResult(content=[TextContent(type="text", text=said)], is_error=True)
    link = ResourceLink(type="resource_link", name=file.name, uri=file.resolve().as_uri(), mime_type="application/json")
    return CallToolResult(content=[TextContent(type="text", text=text), link])
