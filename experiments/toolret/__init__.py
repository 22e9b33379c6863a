"""ToolRet's protocol, for `experiments.evaluate_toolret`."""
