// Lists of paths in one text, as PATH, LD_PRELOAD and LD_LIBRARY_PATH hold them.
// Pure, and of bytes: a path may hold any but the separators. Must not know the environment.
#pragma once

#include <stddef.h>

namespace addpath {

enum class Side { kFront, kBack };

// A source is read this far; whoever names more paths than this hardly means them, and a program's
// start must not take long over them.
inline constexpr size_t kMostComponents = 1024;

// Writes `target` with the components of `source` that it lacks, in their order, joined by ':' at
// one side; what `target` holds keeps its bytes. Empty components are never added.
//
// separators: one or two bytes that part components in either list.
// out: has room for both texts and two bytes more.
// Returns false, with nothing of use in `out`, when nothing is lacking.
bool Join(const char* target, const char* source, const char* separators, Side side, char* out);

}  // namespace addpath
