#pragma once

// glibc has told since 2.32 if a process has one thread. Before, any number is possible.
static constexpr char __libc_single_threaded = 0;
