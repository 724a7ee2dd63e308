// What the tools may ask of the library's own readers. tools/gpufence/config/library.py is the only
// caller. Must not change anything: no hypervisor is asked, no log line is written.
#pragma once

#include "answers/json_text.h"
#include "config/claims.h"

namespace gpufence {

// Everything that is claimed, and with devices ("ordinal nvml uuid-hex total;" each) what holds.
void AnswerClaims(const Sources& sources, const char* devices, JsonText* json);

// Where limits are read and what has no effect, also where they are refused later.
void AnswerSources(const Sources& sources, JsonText* json);

}  // namespace gpufence
