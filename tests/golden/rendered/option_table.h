// option_table.h: hookgen 1, templates/option_table.h.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#pragma once

namespace gpufence {

inline constexpr Option kOptionRows[] = {
    {"GADGET_SIZE", Dialect::kGadgets, Setting::kSize, Keys::kIndexOrUuid},
    {"GADGET_PLACE", Dialect::kGadgets, Setting::kOldName, Keys::kIndex},
    {"FIRST_LABEL", Dialect::kOtherGadgets, Setting::kOldName, Keys::kNone},
    {"SECOND_LABEL", Dialect::kOtherGadgets, Setting::kOldName, Keys::kNone},
    {"THIRD_LABEL", Dialect::kOtherGadgets, Setting::kOldName, Keys::kNone},
};

}  // namespace gpufence
