#include "reader/gloo_threads.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

namespace torchparquet {
namespace {

enum class GlooThreads { kNone, kAsleep, kAwake };

// Source: proc_pid_stat(5): "1234 (name) S ...".
GlooThreads StateOfGlooThreads() {
  auto found = GlooThreads::kNone;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream file(task.path() / "stat");
    std::string line;
    // A thread that has ended has no file.
    if (!std::getline(file, line)) continue;
    if (line.find("(pt_gloo_runloop) ") == std::string::npos) continue;
    const char state = line[std::min(line.rfind(')') + 2, line.size() - 1)];
    found = std::max(
        found, state == 'R' || state == 'D' ? GlooThreads::kAwake : GlooThreads::kAsleep);
  }
  return found;
}

}  // namespace

void AwaitGlooThreads() {
  constexpr std::chrono::milliseconds kPause{1};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  if (StateOfGlooThreads() == GlooThreads::kNone) return;
  do {
    std::this_thread::sleep_for(kPause);
  } while (StateOfGlooThreads() == GlooThreads::kAwake &&
           std::chrono::steady_clock::now() < deadline);
}

}  // namespace torchparquet
