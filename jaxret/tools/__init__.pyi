from .reading import read as read
from .tool import (
    Description as Description,
    Tool as Tool,
    describe as describe,
)
