"""Pictures of the pages, and the code that draws them: `make pictures` draws all anew."""
