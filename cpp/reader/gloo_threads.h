#pragma once

namespace torchparquet {

// Returns once no thread of gloo's process groups is running or about to; at once where
// there are none. Waits 1 ms at least where there are, and 1 s at most.
void AwaitGlooThreads();

}  // namespace torchparquet
