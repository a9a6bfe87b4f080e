#include "bindings/share_arrays.h"

#include <utility>

namespace py = pybind11;

namespace torchparquet {

Share ToShare(const ShareArrays& arrays, int64_t rank, int64_t world_size) {
  Share share{.rank = rank, .world_size = world_size, .chunks = {}};
  const py::ssize_t num_chunks = arrays.file.size();
  for (const py::ssize_t size :
       {arrays.row_group.size(), arrays.begin.size(), arrays.num_rows.size(),
        arrays.first_row_id.size(), arrays.valid.size()}) {
    if (size != num_chunks)
      throw py::value_error("the arrays of a share differ in length");
  }
  share.chunks.reserve(static_cast<size_t>(num_chunks));
  for (py::ssize_t i = 0; i < num_chunks; ++i) {
    share.chunks.push_back({.file = arrays.file.at(i),
                            .rows = {.row_group = arrays.row_group.at(i),
                                     .begin = arrays.begin.at(i),
                                     .num_rows = arrays.num_rows.at(i)},
                            .first_row_id = arrays.first_row_id.at(i),
                            .valid = arrays.valid.at(i)});
  }
  return share;
}

std::vector<Window> ToWindows(const WindowArrays& arrays) {
  const py::ssize_t num_windows = arrays.num_chunks.size();
  for (const py::ssize_t size :
       {arrays.key.size(), arrays.begin.size(), arrays.end.size()}) {
    if (size != num_windows)
      throw py::value_error("the arrays of windows differ in length");
  }
  std::vector<Window> windows;
  windows.reserve(static_cast<size_t>(num_windows));
  for (py::ssize_t i = 0; i < num_windows; ++i) {
    windows.push_back({.num_chunks = arrays.num_chunks.at(i),
                       .key = arrays.key.at(i),
                       .begin = arrays.begin.at(i),
                       .end = arrays.end.at(i)});
  }
  return windows;
}

void DealToLanes(const std::vector<int64_t>& num_chunks,
                 const std::vector<int64_t>& num_windows,
                 const std::vector<int64_t>& index, ReaderSpec* spec) {
  if (num_chunks.empty()) return;
  const bool has_windows = !spec->share.windows.empty();
  if (index.size() != num_chunks.size() ||
      (has_windows && num_windows.size() != num_chunks.size())) {
    throw py::value_error("the arrays of lanes differ in length");
  }
  const Share all = std::move(spec->share);
  auto chunk = all.chunks.begin();
  auto window = all.windows.begin();
  for (size_t lane = 0; lane < num_chunks.size(); ++lane) {
    const int64_t lane_windows = has_windows ? num_windows[lane] : 0;
    if (num_chunks[lane] < 0 || num_chunks[lane] > all.chunks.end() - chunk ||
        lane_windows < 0 || lane_windows > all.windows.end() - window) {
      throw py::value_error("lanes have more chunks or windows than there are");
    }
    Share share{.rank = index[lane],
                .world_size = all.world_size,
                .chunks = {chunk, chunk + num_chunks[lane]},
                .windows = {window, window + lane_windows}};
    chunk += num_chunks[lane];
    window += lane_windows;
    if (lane == 0) {
      spec->share = std::move(share);
    } else {
      spec->beside.push_back(std::move(share));
    }
  }
  if (chunk != all.chunks.end() || window != all.windows.end()) {
    throw py::value_error("lanes have fewer chunks or windows than there are");
  }
}

}  // namespace torchparquet
