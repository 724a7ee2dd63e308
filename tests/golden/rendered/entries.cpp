// entries.cpp: hookgen 1, templates/entries.cpp.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#include "base/entries.h"

// Declared as objects, because the address of an object is a constant expression as void* and the
// address of a function is not; constinit then proves that nothing runs at load time.
#define GPUFENCE_LAZY(index) extern "C" [[gnu::visibility("hidden")]] char gpufence_lazy_##index[]
#define GPUFENCE_EXPORT(name) extern char export_of_##name[] __asm__(#name)

GPUFENCE_LAZY(0);
GPUFENCE_LAZY(1);
GPUFENCE_LAZY(2);
GPUFENCE_LAZY(3);
GPUFENCE_LAZY(4);
GPUFENCE_LAZY(5);
GPUFENCE_LAZY(6);
GPUFENCE_LAZY(7);
GPUFENCE_LAZY(8);
GPUFENCE_LAZY(9);
GPUFENCE_LAZY(10);
GPUFENCE_LAZY(11);
GPUFENCE_LAZY(12);
GPUFENCE_LAZY(13);
GPUFENCE_LAZY(14);
GPUFENCE_LAZY(15);
GPUFENCE_LAZY(16);
GPUFENCE_LAZY(17);
GPUFENCE_LAZY(18);
GPUFENCE_LAZY(19);
GPUFENCE_LAZY(20);
GPUFENCE_LAZY(21);
GPUFENCE_LAZY(22);
GPUFENCE_LAZY(23);

GPUFENCE_EXPORT(cuGadgetArmOnly);
GPUFENCE_EXPORT(cuGadgetBlend);
GPUFENCE_EXPORT(cuGadgetCopy);
GPUFENCE_EXPORT(cuGadgetCopy_ptds);
GPUFENCE_EXPORT(cuGadgetFill);
GPUFENCE_EXPORT(cuGadgetFill_ptsz);
GPUFENCE_EXPORT(cuGadgetFree);
GPUFENCE_EXPORT(cuGadgetImport);
GPUFENCE_EXPORT(cuGadgetMany);
GPUFENCE_EXPORT(cuGadgetName);
GPUFENCE_EXPORT(cuGadgetOnDone);
GPUFENCE_EXPORT(cuGadgetOpen);
GPUFENCE_EXPORT(cuGadgetOpen_v2);
GPUFENCE_EXPORT(cuGadgetOpen_v3);
GPUFENCE_EXPORT(cuGadgetPrivate);
GPUFENCE_EXPORT(cuGadgetRelease);
GPUFENCE_EXPORT(cuGadgetVersion);
GPUFENCE_EXPORT(cuGadgetWalk);
GPUFENCE_EXPORT(nvmlErrorString);
GPUFENCE_EXPORT(nvmlGaugeGet);
GPUFENCE_EXPORT(nvmlGaugeInit_v2);
GPUFENCE_EXPORT(nvmlGaugeRead);
GPUFENCE_EXPORT(nvmlGaugeRead_v2);
GPUFENCE_EXPORT(nvmlGaugeSecret);

extern "C" {
constinit std::atomic<void*> gpufence_entry[gpufence::kSymCount] = {
    gpufence_lazy_0,  // cuGadgetArmOnly
    gpufence_lazy_1,  // cuGadgetBlend
    gpufence_lazy_2,  // cuGadgetCopy
    gpufence_lazy_3,  // cuGadgetCopy_ptds
    gpufence_lazy_4,  // cuGadgetFill
    gpufence_lazy_5,  // cuGadgetFill_ptsz
    gpufence_lazy_6,  // cuGadgetFree
    gpufence_lazy_7,  // cuGadgetImport
    gpufence_lazy_8,  // cuGadgetMany
    gpufence_lazy_9,  // cuGadgetName
    gpufence_lazy_10,  // cuGadgetOnDone
    gpufence_lazy_11,  // cuGadgetOpen
    gpufence_lazy_12,  // cuGadgetOpen_v2
    gpufence_lazy_13,  // cuGadgetOpen_v3
    gpufence_lazy_14,  // cuGadgetPrivate
    gpufence_lazy_15,  // cuGadgetRelease
    gpufence_lazy_16,  // cuGadgetVersion
    gpufence_lazy_17,  // cuGadgetWalk
    gpufence_lazy_18,  // nvmlErrorString
    gpufence_lazy_19,  // nvmlGaugeGet
    gpufence_lazy_20,  // nvmlGaugeInit_v2
    gpufence_lazy_21,  // nvmlGaugeRead
    gpufence_lazy_22,  // nvmlGaugeRead_v2
    gpufence_lazy_23,  // nvmlGaugeSecret
};
}  // extern "C"

namespace gpufence {

constinit void* const kLazyStub[kSymCount] = {
    gpufence_lazy_0,
    gpufence_lazy_1,
    gpufence_lazy_2,
    gpufence_lazy_3,
    gpufence_lazy_4,
    gpufence_lazy_5,
    gpufence_lazy_6,
    gpufence_lazy_7,
    gpufence_lazy_8,
    gpufence_lazy_9,
    gpufence_lazy_10,
    gpufence_lazy_11,
    gpufence_lazy_12,
    gpufence_lazy_13,
    gpufence_lazy_14,
    gpufence_lazy_15,
    gpufence_lazy_16,
    gpufence_lazy_17,
    gpufence_lazy_18,
    gpufence_lazy_19,
    gpufence_lazy_20,
    gpufence_lazy_21,
    gpufence_lazy_22,
    gpufence_lazy_23,
};

constinit void* const kWrapper[kSymCount] = {
    export_of_cuGadgetArmOnly,
    export_of_cuGadgetBlend,
    export_of_cuGadgetCopy,
    export_of_cuGadgetCopy_ptds,
    export_of_cuGadgetFill,
    export_of_cuGadgetFill_ptsz,
    export_of_cuGadgetFree,
    export_of_cuGadgetImport,
    export_of_cuGadgetMany,
    export_of_cuGadgetName,
    export_of_cuGadgetOnDone,
    export_of_cuGadgetOpen,
    export_of_cuGadgetOpen_v2,
    export_of_cuGadgetOpen_v3,
    export_of_cuGadgetPrivate,
    export_of_cuGadgetRelease,
    export_of_cuGadgetVersion,
    export_of_cuGadgetWalk,
    export_of_nvmlErrorString,
    export_of_nvmlGaugeGet,
    export_of_nvmlGaugeInit_v2,
    export_of_nvmlGaugeRead,
    export_of_nvmlGaugeRead_v2,
    export_of_nvmlGaugeSecret,
};

}  // namespace gpufence
