#include "base/mapped_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace torchparquet {
namespace {

// One of so many ranges is looked at, 0.3 to 1 us each: if one page in 30 is missing, so
// is one of 64, with a probability of 0.9. Where all were in memory for a while, a few
// looks find out that this has changed, within some calls.
constexpr size_t kRangesPerLook = 64;
constexpr size_t kRangesPerLookAfterWarmCalls = 512;
constexpr int kWarmCalls = 16;

#if defined(__linux__)
using Residence = unsigned char;
#else
using Residence = char;
#endif

struct Pages {
  Pages(uint64_t address, int64_t num_bytes, uint64_t page_bytes) {
    const uint64_t begin = address / page_bytes * page_bytes;
    // The addresses are of memory that the caller has mapped.
    data = reinterpret_cast<void*>(begin);  // NOLINT(performance-no-int-to-ptr)
    size = static_cast<size_t>(address - begin) + static_cast<size_t>(num_bytes);
  }
  bool BeginInMemory() const {
    Residence first = 0;
    return mincore(data, 1, &first) != 0 || (first & 1) != 0;
  }

  void* data;
  size_t size;
};

}  // namespace

void ReadAhead(std::span<const uint64_t> addresses, std::span<const int64_t> num_bytes) {
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto pages = [&](size_t i) {
    return Pages(addresses[i], num_bytes[i], page_bytes);
  };
  thread_local int num_warm_calls = 0;
  const size_t step =
      num_warm_calls < kWarmCalls ? kRangesPerLook : kRangesPerLookAfterWarmCalls;
  bool is_cold = false;
  for (size_t i = 0; i < addresses.size() && !is_cold; i += step) {
    is_cold = num_bytes[i] > 0 && !pages(i).BeginInMemory();
  }
  num_warm_calls = is_cold ? 0 : std::min(num_warm_calls + 1, kWarmCalls);
  for (size_t i = 0; is_cold && i < addresses.size(); ++i) {
    if (num_bytes[i] == 0) continue;
    const Pages wanted = pages(i);
    madvise(wanted.data, wanted.size, MADV_WILLNEED);
  }
}

}  // namespace torchparquet
