"""Tool lists in common formats, read into one form and described in words.

tools = read("tools.json")           MCP, OpenAI, Anthropic, OpenAPI, JSON lines, CSV, YAML
name, text = describe(tools[0])      the text that is encoded
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
