// Streams as things that are made, take device memory and end. A context gets channels for as many
// as ever live in it at once, and keeps them; they are charged to it (policy/charge.h), and what
// the driver takes beyond that is measured. Must not know what is put into streams.
#include "hooks/charges.h"
#include "hooks/contexts/overhead.h"
#include "hooks/cores/cores.h"
#include "hooks/fence.h"
#include "policy/charge.h"
#include "real.h"

namespace gpufence {
namespace {

// The channels of one context, as they are booked. In the holding: the bytes that are paid, how
// many streams live or may (count), those that are being made, and the most that there ever were.
class Channels {
 public:
  Channels(Fence* fence, FencedDevice* device, uint64_t context)
      : fence_(fence), device_(device), context_(context) {}

  // One stream more may live from now on. Returns what its channels cost beyond what is paid: of
  // several at once each pays for all, so that the first of them to reach the driver finds its
  // channels paid.
  uint64_t Begin();

  // It lives, and what Begin told is charged; or it does not. What was paid twice goes back with
  // the last of several.
  void Made() { Settle(1, unpaid_); }
  void NotMade() { Settle(0, 0); }

  // One ended: its channels stay, for the next one.
  void Ended();

 private:
  static constexpr int kMost = 32;  // shift of that number in the holding's owner

  Holding Booked() const;
  void Settle(uint32_t living, uint64_t paid_bytes);

  Fence* fence_;
  FencedDevice* device_;
  uint64_t context_;
  uint64_t unpaid_ = 0;
};

// Lock held.
Holding Channels::Booked() const {
  Holding booked = {};
  if (!fence_->holdings.Get(HoldingKind::kChannels, context_, &booked)) {
    booked = {.key = context_,
              .context = context_,
              .device = device_->account.device(),
              .kind = HoldingKind::kChannels};
  }
  return booked;
}

uint64_t Channels::Begin() {
  SpinGuard guard(&device_->channels_lock);
  Holding booked = Booked();
  const uint64_t needed = ChannelBytes(++booked.count);
  if (booked.count > booked.owner >> kMost) booked.owner += uint64_t{1} << kMost;
  ++booked.owner;
  unpaid_ = needed > booked.bytes ? needed - booked.bytes : 0;
  fence_->holdings.Put(booked);
  return unpaid_;
}

void Channels::Settle(uint32_t living, uint64_t paid_bytes) {
  uint64_t surplus = 0;
  {
    SpinGuard guard(&device_->channels_lock);
    Holding booked = Booked();
    booked.bytes += paid_bytes;
    if (booked.count > 0) {  // else the context has ended meanwhile
      booked.count -= 1 - living;
      --booked.owner;
    }
    const uint64_t needed = ChannelBytes(booked.owner >> kMost);
    if (static_cast<uint32_t>(booked.owner) == 0 && booked.bytes > needed) {
      surplus = booked.bytes - needed;
      booked.bytes = needed;
    }
    fence_->holdings.Put(booked);
  }
  if (surplus != 0) device_->account.Release(surplus);
}

void Channels::Ended() {
  SpinGuard guard(&device_->channels_lock);
  Holding booked = Booked();
  if (booked.count == 0) return;
  --booked.count;
  fence_->holdings.Put(booked);
}

template <typename Make>
CUresult MakePaid(FencedDevice* device, uint64_t channel_bytes, CUstream* made, Make make) {
  Reservation paid(device, channel_bytes);
  if (!paid) return OverLimit(device);
  {
    Growth growth(device, 0, channel_bytes);
    const CUresult rc = make(made);
    if (rc != CUDA_SUCCESS) return rc;
    if (growth.Settle()) {
      paid.Keep();
      return rc;
    }
  }
  CallThatGrows(device, 0, [&] { return real::cuStreamDestroy_v2(*made); });
  return CUDA_ERROR_OUT_OF_MEMORY;
}

template <typename Make>
CUresult Create(CUstream* out, unsigned int flags, Make make) {
  if ((flags & CU_STREAM_NON_BLOCKING) == 0) NoteBlockingStream();
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.current_device();
  if (device == nullptr || out == nullptr) return make(out);
  CUstream made = nullptr;
  Channels channels(hook.fence(), device, hook.context());
  const CUresult rc = MakePaid(device, channels.Begin(), &made, make);
  if (rc != CUDA_SUCCESS) {
    channels.NotMade();
    return rc;
  }
  channels.Made();
  AddHolding(hook.fence(), {.key = reinterpret_cast<uint64_t>(made),
                            .context = hook.context(),
                            .device = device->account.device(),
                            .kind = HoldingKind::kStream});
  *out = made;
  return rc;
}

// Not of the current context; two chunks are the most that was seen.
template <typename Make>
CUresult CreateGreen(CUstream* out, Make make) {
  const Hook hook;
  if (hook.refused()) return kRefusalCode;
  FencedDevice* device = hook.current_device();
  if (device == nullptr || out == nullptr) return make(out);
  CUstream made = nullptr;
  const CUresult rc = CallThatGrows(
      device, 2 * kChunkBytes, [&] { return make(&made); },
      [&] { return real::cuStreamDestroy_v2(made); });
  if (rc == CUDA_SUCCESS) *out = made;
  return rc;
}

template <typename End>
CUresult Destroy(CUstream stream, End end) {
  const Hook hook;
  Fence* fence = hook.fence();
  Cores* cores = ActiveCores();
  if (cores != nullptr && stream != nullptr) EndCoreStream(cores, stream);
  Holding ended;
  const bool known =
      fence != nullptr &&
      fence->holdings.Take(HoldingKind::kStream, reinterpret_cast<uint64_t>(stream), &ended);
  const CUresult rc = end(stream);
  if (!known) return rc;
  if (rc == CUDA_SUCCESS) {
    Channels(fence, &fence->devices[ended.device], ended.context).Ended();
  } else {
    AddHolding(fence, ended);
  }
  return rc;
}

}  // namespace
}  // namespace gpufence

extern "C" {

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return gpufence::Create(phStream, Flags,
                          [=](CUstream* made) { return real::cuStreamCreate(made, Flags); });
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return gpufence::Create(phStream, flags, [=](CUstream* made) {
    return real::cuStreamCreateWithPriority(made, flags, priority);
  });
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                int priority) {
  return gpufence::CreateGreen(phStream, [=](CUstream* made) {
    return real::cuGreenCtxStreamCreate(made, greenCtx, flags, priority);
  });
}

CUresult cuStreamDestroy(CUstream hStream) {
  return gpufence::Destroy(hStream, real::cuStreamDestroy);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  return gpufence::Destroy(hStream, real::cuStreamDestroy_v2);
}

}  // extern "C"
