// Physical memory without an address (cuMemCreate) and what keeps it alive: handles given out,
// mappings, parts of sparse arrays, multicast bindings. Its charge goes with the last of them.
//
// One count per handle stands for all of these. It falls before the driver's call, since the handle
// may be somebody else's the moment the call returns, and bytes leave the ledger after it.
#pragma once

#include <stdint.h>

#include "hooks/fence.h"

namespace gpufence {

// What a physical holding is, in its `owner`.
enum class PhysicalKind : uint64_t {
  kMemory = 0,
  kMulticast,  // no memory of its own; its end ends its bindings
};

// One more reference to a handle, given back unless it is kept. A handle nobody charged stays so.
class AddedReference {
 public:
  AddedReference(Fence* fence, uint64_t handle);
  ~AddedReference();
  AddedReference(const AddedReference&) = delete;
  AddedReference& operator=(const AddedReference&) = delete;

  void Keep() { added_ = false; }
  bool added() const { return added_; }
  const Holding& physical() const { return physical_; }

 private:
  Fence* fence_;
  Holding physical_;
  bool added_;
};

// One reference less, from before the driver's call.
struct DroppedReference {
  Holding physical;
  bool known = false;
  bool last = false;  // the charge has left the table and waits for the driver
};
DroppedReference DropReference(Fence* fence, uint64_t handle);

// After the driver's call: gives the charge of a last reference back, or restores the reference.
void SettleDropped(Fence* fence, const DroppedReference& dropped, bool succeeded);

// References that have an owner of their own: `group` is what ends them all (an array, a multicast
// object), `key` the place in it. A new link to the same place replaces the old one.
void AddLink(Fence* fence, uint64_t group, uint64_t key, uint64_t handle);
void DropLinksOf(Fence* fence, uint64_t group);

// One link less, from before the driver's call.
class DroppedLink {
 public:
  DroppedLink(Fence* fence, uint64_t key);
  CUresult Settle(CUresult rc);

 private:
  Fence* fence_;
  Holding link_;
  DroppedReference dropped_;
};

// A number for a place, different ones for different places.
uint64_t PlaceKey(const uint64_t* words, int count);

}  // namespace gpufence
