"""What `experiments.evaluate_toolret` is made of: ToolRet's protocol."""
