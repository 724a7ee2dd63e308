// Reading the environment. Owns the rule that a privileged process ignores variables an
// unprivileged caller could have set. Must not know what any variable means.
#pragma once

namespace gpufence {

// The variable's text, or nullptr when it is unset or the process runs with raised privileges
// (secure execution). The text belongs to the environment: read it, never keep it across setenv.
const char* EnvText(const char* name);

// All of it, as "NAME=TEXT" up to a null pointer, for whoever cannot name what it looks for;
// nullptr in a process with raised privileges. The same care as above.
char** Environment();

}  // namespace gpufence
