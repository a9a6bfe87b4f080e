#pragma once

#include <sys/types.h>

#include <fstream>
#include <limits>
#include <string>
#include <thread>

namespace torchparquet::testing {

// Returns when Linux says that a thread of this process (its `gettid()`) sleeps, as it
// does in a wait. The thread must be about to wait.
inline void AwaitSleep(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
  for (;;) {
    // The state follows the name in parentheses: "70 (reader) S ...".
    std::ifstream stat(path);
    stat.ignore(std::numeric_limits<std::streamsize>::max(), ')');
    char state = 0;
    if (stat >> state && state == 'S') return;
    std::this_thread::yield();
  }
}

}  // namespace torchparquet::testing
