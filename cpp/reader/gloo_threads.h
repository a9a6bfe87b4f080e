#pragma once

namespace torchparquet {

// Returns when no thread of gloo's process groups is running or about to run; at once if
// there are no such threads. Otherwise waits between 1 ms and 1 s.
void AwaitGlooThreads();

}  // namespace torchparquet
