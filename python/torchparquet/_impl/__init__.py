"""All that is private: no name below here is part of the interface."""
