// Reading the environment. Owns the rule that a privileged process ignores variables an
// unprivileged caller could have set. Must not know what any variable means.
#pragma once

#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

namespace gpufence {

// The variable's text, or nullptr when it is unset or the process runs with raised privileges
// (secure execution). The text belongs to the environment: read it, never keep it across setenv.
inline const char* EnvText(const char* name) { return secure_getenv(name); }

// All of it, as "NAME=TEXT" up to a null pointer, for whoever cannot name what it looks for;
// nullptr in a process with raised privileges. The same care as above.
inline char** Environment() { return getauxval(AT_SECURE) != 0 ? nullptr : environ; }

}  // namespace gpufence
