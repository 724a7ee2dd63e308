#include "core/env.h"

#include <stdlib.h>

namespace gpufence {

const char* EnvText(const char* name) { return secure_getenv(name); }

}  // namespace gpufence
