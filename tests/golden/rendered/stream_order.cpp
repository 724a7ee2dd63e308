// stream_order.cpp: hookgen 1, templates/stream_order.cpp.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
// They cost nothing by themselves. What was launched before them is marked first, and what is
// launched after them begins anew.
#include "hooks/cores/cores.h"
#include "hooks/cores/streams.h"
#include "real.h"

using namespace gpufence;

extern "C" {
CUresult cuGadgetCopy(void* dst, const void* src, size_t bytes) { LeaveAllKernels(); return real::cuGadgetCopy(dst, src, bytes); }
CUresult cuGadgetCopy_ptds(void* dst, const void* src, size_t bytes) { LeaveAllKernels(); return real::cuGadgetCopy_ptds(dst, src, bytes); }
CUresult cuGadgetFill(void* p, float value, double scale, CUstream hStream) { LeaveKernels(hStream); const CorePut put(hStream); return real::cuGadgetFill(p, value, scale, hStream); }
CUresult cuGadgetFill_ptsz(void* p, float value, double scale, CUstream hStream) { LeaveKernels(PerThread(hStream)); const CorePut put(PerThread(hStream)); return real::cuGadgetFill_ptsz(p, value, scale, hStream); }
}  // extern "C"
