// real.h: hookgen 1, templates/real.h.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#pragma once

#include "base/entries.h"
#include "base/held_locks.h"
#include "driver_abi.h"

// A forwarded call leaves no frame behind; g++ does so from -O2 on by itself.
#ifndef GPUFENCE_TAIL
#if __has_cpp_attribute(clang::musttail)
#define GPUFENCE_TAIL [[clang::musttail]]
#else
#define GPUFENCE_TAIL
#endif
#endif

namespace real {

// The current word of an entry. Relaxed: the driver's code was mapped before its address was stored.
template <typename Function>
inline Function* Entry(gpufence::Sym sym) {
#ifdef GPUFENCE_CHECK_LOCKS
  gpufence::ExpectNoLock(gpufence::kSymInfo[sym].name);
#endif
  return reinterpret_cast<Function*>(gpufence_entry[sym].load(std::memory_order_relaxed));
}

inline CUresult cuGadgetArmOnly(CUgadget gadget) { GPUFENCE_TAIL return Entry<CUresult(CUgadget)>(gpufence::kSym_cuGadgetArmOnly)(gadget); }
inline CUresult cuGadgetBlend(float w0, float w1, float w2, float w3, float w4, float w5, float w6, float w7, double bias, int n0, int n1, long n2, unsigned long long n3, CUbytes n4, size_t n5) { GPUFENCE_TAIL return Entry<CUresult(float, float, float, float, float, float, float, float, double, int, int, long, unsigned long long, CUbytes, size_t)>(gpufence::kSym_cuGadgetBlend)(w0, w1, w2, w3, w4, w5, w6, w7, bias, n0, n1, n2, n3, n4, n5); }
inline CUresult cuGadgetCopy(void* dst, const void* src, size_t bytes) { GPUFENCE_TAIL return Entry<CUresult(void*, const void*, size_t)>(gpufence::kSym_cuGadgetCopy)(dst, src, bytes); }
inline CUresult cuGadgetCopy_ptds(void* dst, const void* src, size_t bytes) { GPUFENCE_TAIL return Entry<CUresult(void*, const void*, size_t)>(gpufence::kSym_cuGadgetCopy_ptds)(dst, src, bytes); }
inline CUresult cuGadgetFill(void* p, float value, double scale, CUstream hStream) { GPUFENCE_TAIL return Entry<CUresult(void*, float, double, CUstream)>(gpufence::kSym_cuGadgetFill)(p, value, scale, hStream); }
inline CUresult cuGadgetFill_ptsz(void* p, float value, double scale, CUstream hStream) { GPUFENCE_TAIL return Entry<CUresult(void*, float, double, CUstream)>(gpufence::kSym_cuGadgetFill_ptsz)(p, value, scale, hStream); }
inline CUresult cuGadgetFree(void* p) { GPUFENCE_TAIL return Entry<CUresult(void*)>(gpufence::kSym_cuGadgetFree)(p); }
inline CUresult cuGadgetImport(CUgadget* gadget, CUtoken token, unsigned int flags) { return Entry<CUresult(CUgadget*, CUtoken, unsigned int)>(gpufence::kSym_cuGadgetImport)(gadget, token, flags); }
inline CUresult cuGadgetMany(const CUplan* plan, int a, unsigned int b, long long c, size_t d, float e, double f, unsigned char g, CUcolor h, void* i, const void* const* j, unsigned short k, float l, uint64_t m, CUgadget n, CUstream o) { GPUFENCE_TAIL return Entry<CUresult(const CUplan*, int, unsigned int, long long, size_t, float, double, unsigned char, CUcolor, void*, const void* const*, unsigned short, float, uint64_t, CUgadget, CUstream)>(gpufence::kSym_cuGadgetMany)(plan, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o); }
inline CUresult cuGadgetName(char name[32], int len) { GPUFENCE_TAIL return Entry<CUresult(char[32], int)>(gpufence::kSym_cuGadgetName)(name, len); }
inline CUresult cuGadgetOnDone(CUstream hStream, CUdoneFn fn, void* userData) { GPUFENCE_TAIL return Entry<CUresult(CUstream, CUdoneFn, void*)>(gpufence::kSym_cuGadgetOnDone)(hStream, fn, userData); }
inline CUresult cuGadgetOpen(CUgadget* gadget, unsigned int bytes) { GPUFENCE_TAIL return Entry<CUresult(CUgadget*, unsigned int)>(gpufence::kSym_cuGadgetOpen)(gadget, bytes); }
inline CUresult cuGadgetOpen_v2(CUgadget* gadget, size_t bytes, CUshape shape, unsigned long long flags) { return Entry<CUresult(CUgadget*, size_t, CUshape, unsigned long long)>(gpufence::kSym_cuGadgetOpen_v2)(gadget, bytes, shape, flags); }
inline CUresult cuGadgetOpen_v3(CUgadget* gadget, const CUplan* plan) { GPUFENCE_TAIL return Entry<CUresult(CUgadget*, const CUplan*)>(gpufence::kSym_cuGadgetOpen_v3)(gadget, plan); }
inline CUresult cuGadgetRelease(void* p) { GPUFENCE_TAIL return Entry<CUresult(void*)>(gpufence::kSym_cuGadgetRelease)(p); }
inline unsigned long long cuGadgetVersion() { GPUFENCE_TAIL return Entry<unsigned long long()>(gpufence::kSym_cuGadgetVersion)(); }
inline CUresult cuGadgetWalk(size_t (*visit)(int, void*), CUlookupFn* lookup, void* p) { GPUFENCE_TAIL return Entry<CUresult(size_t (*)(int, void*), CUlookupFn*, void*)>(gpufence::kSym_cuGadgetWalk)(visit, lookup, p); }
inline const char* nvmlErrorString(nvmlReturn_t result) { GPUFENCE_TAIL return Entry<const char*(nvmlReturn_t)>(gpufence::kSym_nvmlErrorString)(result); }
inline nvmlReturn_t nvmlGaugeGet(nvmlGauge_t gauge, nvmlReading_t* readings) { GPUFENCE_TAIL return Entry<nvmlReturn_t(nvmlGauge_t, nvmlReading_t*)>(gpufence::kSym_nvmlGaugeGet)(gauge, readings); }
inline nvmlReturn_t nvmlGaugeInit_v2() { GPUFENCE_TAIL return Entry<nvmlReturn_t()>(gpufence::kSym_nvmlGaugeInit_v2)(); }
inline nvmlReturn_t nvmlGaugeRead(nvmlGauge_t gauge, nvmlReading_t* readings) { GPUFENCE_TAIL return Entry<nvmlReturn_t(nvmlGauge_t, nvmlReading_t*)>(gpufence::kSym_nvmlGaugeRead)(gauge, readings); }
inline nvmlReturn_t nvmlGaugeRead_v2(nvmlGauge_t gauge, unsigned int* count, nvmlReading_t* readings) { GPUFENCE_TAIL return Entry<nvmlReturn_t(nvmlGauge_t, unsigned int*, nvmlReading_t*)>(gpufence::kSym_nvmlGaugeRead_v2)(gauge, count, readings); }

}  // namespace real
