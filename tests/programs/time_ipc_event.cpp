// An event between two processes.
// link: cuda
//
//   time_ipc_event owner     records an event behind 200 ms of work, prints its handle in hex,
//                            waits for a line on stdin and ends
//   time_ipc_event HANDLE    opens it, asks, lets a stream wait for it and says what it saw
#include "time_program.h"

using namespace timing;

namespace {

int Own(const Gpu& gpu) {
  CUevent event = NewEvent(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
  CUstream stream = NewStream();
  CUipcEventHandle handle = {};
  MUST(cuIpcGetEventHandle(&handle, event));
  MUST(gpu.Spin(stream, 200 * kMs));
  MUST(cuEventRecord(event, stream));
  for (unsigned char byte : handle.reserved) printf("%02x", byte);
  printf("\n");
  fflush(stdout);
  char line[16];
  return fgets(line, sizeof(line), stdin) != nullptr ? 0 : 3;
}

int Use(const char* text) {
  CUipcEventHandle handle = {};
  for (size_t i = 0; i < sizeof(handle.reserved); ++i) {
    unsigned byte = 0;
    if (sscanf(text + 2 * i, "%2x", &byte) != 1) return 2;
    handle.reserved[i] = static_cast<char>(byte);
  }
  CUevent event = nullptr;
  MUST(cuIpcOpenEventHandle(&event, handle));
  Facts facts;
  facts.Code("before", cuEventQuery(event));
  CUstream stream = NewStream();
  MUST(cuStreamWaitEvent(stream, event, 0));
  facts.Code("stream before", cuStreamQuery(stream));
  MUST(cuStreamSynchronize(stream));
  facts.Code("after", cuEventQuery(event));
  facts.Code("synchronise", cuEventSynchronize(event));
  CUevent plain = NewEvent();
  facts.Code("handle of a plain event", cuIpcGetEventHandle(&handle, plain));
  memset(&handle, 1, sizeof(handle));
  facts.Code("invented handle", cuIpcOpenEventHandle(&event, handle));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const Gpu gpu;
  return strcmp(argv[1], "owner") == 0 ? Own(gpu) : Use(argv[1]);
}
