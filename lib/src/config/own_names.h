// Which names that begin with GPUFENCE_ are meant for somebody, and which one a wrong name was
// meant to be. Must not know what any of them means.
#pragma once

#include <stddef.h>

#include <string_view>

namespace gpufence {

// Names that other parts of gpufence read: a name that begins so, or is just this one.
extern const char* const kOwnElsewhere[];
extern const size_t kOwnElsewhereCount;

// True for a name of ours that no part reads. Kubernetes sets variables for each Service, so a
// Service called gpufence makes names such as GPUFENCE_SERVICE_HOST: those are known.
bool IsUnknownOwn(std::string_view name);

inline constexpr size_t kNearestBytes = 64;

// The option of ours that `name` was meant to be, a key of the config file or a variable; false:
// none is near.
bool NearestOwn(std::string_view name, bool in_file, char nearest[kNearestBytes]);

}  // namespace gpufence
