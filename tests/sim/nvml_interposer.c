// flags: -D_GNU_SOURCE -shared -fPIC
// Stands in front of libnvidia-ml and tells on stderr, one name a line, which of its exports are
// called through it: by the program, and by the library itself.
#include <dlfcn.h>
#include <stdio.h>

static void* Real(const char* name) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_NOLOAD);
  fprintf(stderr, "%s\n", name);
  return dlsym(library, name);
}

#define FORWARD(name, parameters, arguments) \
  int name parameters;                       \
  int name parameters { return ((int(*) parameters)Real(#name))arguments; }

FORWARD(nvmlInit, (void), ())
FORWARD(nvmlInit_v2, (void), ())
FORWARD(nvmlInitWithFlags, (unsigned flags), (flags))
FORWARD(nvmlDeviceGetCount, (unsigned* count), (count))
FORWARD(nvmlDeviceGetCount_v2, (unsigned* count), (count))
FORWARD(nvmlDeviceGetHandleByIndex, (unsigned index, void** device), (index, device))
FORWARD(nvmlDeviceGetHandleByIndex_v2, (unsigned index, void** device), (index, device))
FORWARD(nvmlDeviceGetHandleByPciBusId, (const char* id, void** device), (id, device))
FORWARD(nvmlDeviceGetHandleByPciBusId_v2, (const char* id, void** device), (id, device))
FORWARD(nvmlDeviceGetMemoryInfo, (void* device, void* memory), (device, memory))
FORWARD(nvmlDeviceGetMemoryInfo_v2, (void* device, void* memory), (device, memory))
FORWARD(nvmlDeviceGetPciInfo, (void* device, void* pci), (device, pci))
FORWARD(nvmlDeviceGetPciInfo_v2, (void* device, void* pci), (device, pci))
FORWARD(nvmlDeviceGetPciInfo_v3, (void* device, void* pci), (device, pci))
FORWARD(nvmlDeviceGetUtilizationRates, (void* device, void* rates), (device, rates))
