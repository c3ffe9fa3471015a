"""A small server with the interface of OpenAI's completions, over the same engine that trains."""
