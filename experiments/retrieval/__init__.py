"""Every retrieval method by name, on one data set: what several experiments share."""
