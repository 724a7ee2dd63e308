// Events that the program records. They take no time, and no run ends with one: programs that
// measure put one behind each kernel. But each has its place in a queue, and waits for it.
#include "hooks/cores/cores.h"
#include "hooks/cores/streams.h"
#include "real.h"

using gpufence::PerThread;

namespace {

template <typename Record>
CUresult Recorded(CUstream stream, Record record) {
  gpufence::Cores* cores = gpufence::ActiveCores();
  if (cores == nullptr) return record();
  gpufence::MarkedStream* known = cores->markers.streams.Find(stream);
  if (known != nullptr) known->others_put.fetch_add(1, std::memory_order_relaxed);
  const gpufence::CorePut put(stream);
  return record();
}

}  // namespace

extern "C" {

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  return Recorded(hStream, [=] { return real::cuEventRecord(hEvent, hStream); });
}

CUresult cuEventRecord_ptsz(CUevent hEvent, CUstream hStream) {
  return Recorded(PerThread(hStream), [=] { return real::cuEventRecord_ptsz(hEvent, hStream); });
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return Recorded(hStream, [=] { return real::cuEventRecordWithFlags(hEvent, hStream, flags); });
}

CUresult cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return Recorded(PerThread(hStream),
                  [=] { return real::cuEventRecordWithFlags_ptsz(hEvent, hStream, flags); });
}

}  // extern "C"
