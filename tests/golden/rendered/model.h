// model.h: hookgen 1, templates/model.h.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
// The build includes this file first in every such object. Objects of two models number the
// driver's functions differently: linked together they would call the wrong ones without an error.
// So each object asks for the symbol of its model, and only one rendered file of that model defines
// it. Objects of two models do not link.
#pragma once

extern "C" [[gnu::visibility("hidden")]] const char gpufence_compiled_from_model_0d5d24616bf57027;

// One for all objects of the model: the linker keeps the first.
[[gnu::used]] inline constinit const char* const gpufence_asks_for_model_0d5d24616bf57027 =
    &gpufence_compiled_from_model_0d5d24616bf57027;
