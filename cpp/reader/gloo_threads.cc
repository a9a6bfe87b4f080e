#include "reader/gloo_threads.h"

#include <dirent.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

namespace torchparquet {
namespace {

enum class GlooThreads { kNone, kAsleep, kAwake };

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

// Source: proc_pid_stat(5): "1234 (name) S ...".
GlooThreads StateOfGlooThreads() {
  auto found = GlooThreads::kNone;
  // Not std::filesystem, which the C++ libraries of older systems lack.
  const std::string path = "/proc/self/task";
  const std::unique_ptr<DIR, CloseFolder> folder(opendir(path.c_str()));
  if (folder == nullptr) return found;
  while (const dirent* task = readdir(folder.get())) {
    std::ifstream file(path + "/" + task->d_name + "/stat");
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
