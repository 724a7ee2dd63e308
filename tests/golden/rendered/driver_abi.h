// driver_abi.h: hookgen 1, templates/driver_abi.h.j2, model 0d5d24616bf57027
// Generated: change the model or the template, never this file.
// clang-format off
#pragma once

#include <stddef.h>
#include <stdint.h>

// Records. Those that no signature passes by value and no hook reads stay incomplete.
struct CUplan;
struct CUseal;
struct CUsecret;
struct CUshape_v1;
struct CUtoken_v1;
struct nvmlReading_t;
union nvmlValue_t;

// Handles: pointers to structs that nobody may look into.
typedef struct CUgadget_st* CUgadget;
typedef struct CUstream_st* CUstream;
typedef struct nvmlGauge_st* nvmlGauge_t;

// Enums. Those that no hook reads have no enumerators.
enum CUaxis : int {
  CU_AXIS_NONE = -1,
  CU_AXIS_X = 0,
};
enum CUcolor : unsigned int;
enum CUresult : unsigned int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_SUPPORTED = 801,
};
enum nvmlReturn_t : unsigned int {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_FUNCTION_NOT_FOUND = 13,
};

// Integer macros.
inline constexpr unsigned int CU_GADGET_NAME_BYTES = 32;
inline constexpr unsigned long long CU_GADGET_WIDE = 1099511627776;

extern "C" {

// Aliases, function types and records, each after what it needs.
typedef unsigned long long CUbytes;
typedef void (*CUdoneFn)(CUstream, CUresult, void*);
typedef CUresult CUlookupFn(unsigned int, void**);
struct CUshape_v1 {
  CUaxis axis;
  int id;
};
static_assert(sizeof(CUshape_v1) == 8 && alignof(CUshape_v1) == 4);
static_assert(offsetof(CUshape_v1, axis) == 0);
static_assert(offsetof(CUshape_v1, id) == 4);
struct alignas(8) CUseal {
  unsigned char opaque[24];
};
static_assert(sizeof(CUseal) == 24 && alignof(CUseal) == 8);
typedef CUshape_v1 CUshape;
struct CUplan {
  CUshape shape;
  CUseal seal;
  union {
    CUbytes bytes;
    void* ptr;
    struct {
      unsigned int low;
      unsigned int high;
    };
  };
  struct {
    unsigned int x;
    unsigned int y;
    unsigned int z;
  } extent;
  unsigned int ready : 1;
  unsigned int mode : 7;
  short grid[3][4];
  unsigned char reserved[10];
  const CUplan* next;
  CUdoneFn done;
  CUsecret* secret;
};
static_assert(sizeof(CUplan) == 112 && alignof(CUplan) == 8);
static_assert(offsetof(CUplan, shape) == 0);
static_assert(offsetof(CUplan, seal) == 8);
static_assert(offsetof(CUplan, bytes) == 32);
static_assert(offsetof(CUplan, ptr) == 32);
static_assert(offsetof(CUplan, low) == 32);
static_assert(offsetof(CUplan, high) == 36);
static_assert(offsetof(CUplan, extent.x) == 40);
static_assert(offsetof(CUplan, extent.y) == 44);
static_assert(offsetof(CUplan, extent.z) == 48);
static_assert(offsetof(CUplan, grid) == 54);
static_assert(offsetof(CUplan, reserved) == 78);
static_assert(offsetof(CUplan, next) == 88);
static_assert(offsetof(CUplan, done) == 96);
static_assert(offsetof(CUplan, secret) == 104);
typedef CUtoken_v1 CUtoken;
struct alignas(1) CUtoken_v1 {
  unsigned char opaque[64];
};
static_assert(sizeof(CUtoken_v1) == 64 && alignof(CUtoken_v1) == 1);
union nvmlValue_t {
  double dVal;
  int siVal;
  unsigned long long ullVal;
};
static_assert(sizeof(nvmlValue_t) == 8 && alignof(nvmlValue_t) == 8);
static_assert(offsetof(nvmlValue_t, dVal) == 0);
static_assert(offsetof(nvmlValue_t, siVal) == 0);
static_assert(offsetof(nvmlValue_t, ullVal) == 0);
struct nvmlReading_t {
  unsigned long long timeStamp;
  nvmlValue_t value;
};
static_assert(sizeof(nvmlReading_t) == 16 && alignof(nvmlReading_t) == 8);
static_assert(offsetof(nvmlReading_t, timeStamp) == 0);
static_assert(offsetof(nvmlReading_t, value) == 8);

// Functions. Their visibility is stated here, so a hook compiled with -fvisibility=hidden exports.
#pragma GCC visibility push(default)
CUresult cuGadgetArmOnly(CUgadget gadget);
CUresult cuGadgetBlend(float w0, float w1, float w2, float w3, float w4, float w5, float w6, float w7, double bias, int n0, int n1, long n2, unsigned long long n3, CUbytes n4, size_t n5);
CUresult cuGadgetCopy(void* dst, const void* src, size_t bytes);
CUresult cuGadgetCopy_ptds(void* dst, const void* src, size_t bytes);
CUresult cuGadgetFill(void* p, float value, double scale, CUstream hStream);
CUresult cuGadgetFill_ptsz(void* p, float value, double scale, CUstream hStream);
CUresult cuGadgetFree(void* p);
CUresult cuGadgetImport(CUgadget* gadget, CUtoken token, unsigned int flags);
CUresult cuGadgetMany(const CUplan* plan, int a, unsigned int b, long long c, size_t d, float e, double f, unsigned char g, CUcolor h, void* i, const void* const* j, unsigned short k, float l, uint64_t m, CUgadget n, CUstream o);
CUresult cuGadgetName(char name[32], int len);
CUresult cuGadgetOnDone(CUstream hStream, CUdoneFn fn, void* userData);
CUresult cuGadgetOpen(CUgadget* gadget, unsigned int bytes);
CUresult cuGadgetOpen_v2(CUgadget* gadget, size_t bytes, CUshape shape, unsigned long long flags);
CUresult cuGadgetOpen_v3(CUgadget* gadget, const CUplan* plan);
CUresult cuGadgetRelease(void* p);
unsigned long long cuGadgetVersion();
CUresult cuGadgetWalk(size_t (*visit)(int, void*), CUlookupFn* lookup, void* p);
const char* nvmlErrorString(nvmlReturn_t result);
nvmlReturn_t nvmlGaugeGet(nvmlGauge_t gauge, nvmlReading_t* readings);
nvmlReturn_t nvmlGaugeInit_v2();
nvmlReturn_t nvmlGaugeRead(nvmlGauge_t gauge, nvmlReading_t* readings);
nvmlReturn_t nvmlGaugeRead_v2(nvmlGauge_t gauge, unsigned int* count, nvmlReading_t* readings);
#pragma GCC visibility pop

}  // extern "C"
