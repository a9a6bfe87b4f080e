#pragma once

#include <memory>

#include "pages/decode_scratch.h"
#include "reader/reader_state.h"

namespace torchparquet {

// Runs tasks until there are no more, as one of the reader's threads. The spare one
// leaves its core to the consumer while enough batches wait.
void DecodeUntilDone(ReaderState* state, std::unique_ptr<DecodeScratch> scratch,
                     bool is_spare);

// Called with the state's mutex held. True if the next chunk or window has room.
bool CanOpen(const ReaderState& state);

// Called with the state's mutex held. True if a waiting thread may have work now that a
// batch was taken. Waking threads that have none costs two context switches per batch.
bool LetsThreadGoOn(const ReaderState& state);

}  // namespace torchparquet
