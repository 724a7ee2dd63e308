// sim_data.cpp: hookgen 1, templates/sim_data.cpp.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
extern "C" {
#pragma GCC visibility push(default)
extern unsigned char cudbgInjectionPath[4096];
constinit unsigned char cudbgInjectionPath[4096] = {};
extern unsigned char cudbgIpcFlag[8];
constinit unsigned char cudbgIpcFlag[8] = {};
extern unsigned char cudbgSessionId[8];
constinit unsigned char cudbgSessionId[8] = {};
#pragma GCC visibility pop
}  // extern "C"
