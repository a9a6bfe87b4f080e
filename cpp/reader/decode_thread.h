#pragma once

#include <memory>
#include <mutex>

#include "pages/decode_scratch.h"
#include "reader/reader_state.h"

namespace torchparquet {

// Runs tasks until there are no more, as one of the reader's threads. The spare one
// leaves its core to the consumer while enough batches wait.
void DecodeUntilDone(ReaderState* state, std::unique_ptr<DecodeScratch> scratch,
                     bool is_spare);

// Called with the state's mutex held. True if the next chunk or window has room.
bool CanOpen(const ReaderState& state);

// Called with the state's mutex held, which it lets go, after a batch was taken: wakes a
// waiting thread that may have work now. Waking one that has none costs two context
// switches.
void WakeAfterTake(ReaderState* state, std::unique_lock<std::mutex> lock);

}  // namespace torchparquet
