#include "base/env.h"

#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

namespace gpufence {

const char* EnvText(const char* name) { return secure_getenv(name); }

char** Environment() { return getauxval(AT_SECURE) != 0 ? nullptr : environ; }

}  // namespace gpufence
