// link: cuda
// flags: -Wl,-z,lazy
// Facts: arrays and mipmapped arrays: which shapes are accepted, what they cost, what they tell.

#include <string>

#include "gpu.h"

namespace conformance {
namespace {

CUDA_ARRAY3D_DESCRIPTOR Shape(size_t width, size_t height, size_t depth, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = width;
  shape.Height = height;
  shape.Depth = depth;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  shape.Flags = flags;
  return shape;
}

void Plain(Facts& facts) {
  CUDA_ARRAY_DESCRIPTOR wanted{};
  wanted.Width = 64;
  wanted.Height = 32;
  wanted.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  wanted.NumChannels = 4;
  CUarray array = reinterpret_cast<CUarray>(kPoison);
  wanted.NumChannels = 3;
  facts.Code("2d.three_channels", cuArrayCreate_v2(&array, &wanted));
  wanted.NumChannels = 4;
  wanted.Width = 0;
  facts.Code("2d.zero_width", cuArrayCreate_v2(&array, &wanted));
  wanted.Width = size_t{1} << 24;
  facts.Code("2d.too_wide", cuArrayCreate_v2(&array, &wanted));
  wanted.Width = 64;
  wanted.Format = static_cast<CUarray_format>(0x7777);
  facts.Code("2d.bad_format", cuArrayCreate_v2(&array, &wanted));
  facts.Code("2d.null_descriptor", cuArrayCreate_v2(&array, nullptr));
  facts.Is("2d.refused_leaves_output", array == reinterpret_cast<CUarray>(kPoison));
  wanted.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  facts.Code("2d.null_output", cuArrayCreate_v2(nullptr, &wanted));
  facts.Code("2d.create", cuArrayCreate_v2(&array, &wanted));
  CUDA_ARRAY_DESCRIPTOR back{};
  CUDA_ARRAY3D_DESCRIPTOR back_3d{};
  facts.Code("2d.descriptor", cuArrayGetDescriptor_v2(&back, array));
  facts.Is("2d.descriptor_as_created", back.Width == 64 && back.Height == 32 &&
                                           back.Format == wanted.Format && back.NumChannels == 4);
  facts.Code("2d.descriptor_as_3d", cuArray3DGetDescriptor_v2(&back_3d, array));
  facts.Is("2d.descriptor_as_3d_agrees",
           back_3d.Width == 64 && back_3d.Height == 32 && back_3d.Depth == 0 && back_3d.Flags == 0);
  facts.Code("2d.destroy", cuArrayDestroy(array));
  facts.Code("2d.destroy_null", cuArrayDestroy(nullptr));
  wanted.Height = 0;
  facts.Code("1d.create", cuArrayCreate_v2(&array, &wanted));
  facts.Code("1d.destroy", cuArrayDestroy(array));
}

void Shapes(Facts& facts) {
  struct Case {
    const char* name;
    CUDA_ARRAY3D_DESCRIPTOR shape;
  };
  const Case cases[] = {
      {"1d", Shape(64, 0, 0)},
      {"2d", Shape(64, 64, 0)},
      {"3d", Shape(64, 64, 16)},
      {"depth_without_height", Shape(64, 0, 16)},
      {"1d_layered", Shape(64, 0, 16, CUDA_ARRAY3D_LAYERED)},
      {"2d_layered", Shape(64, 64, 16, CUDA_ARRAY3D_LAYERED)},
      {"layered_without_layers", Shape(64, 64, 0, CUDA_ARRAY3D_LAYERED)},
      {"cubemap", Shape(64, 64, 6, CUDA_ARRAY3D_CUBEMAP)},
      {"cubemap_of_five", Shape(64, 64, 5, CUDA_ARRAY3D_CUBEMAP)},
      {"cubemap_not_square", Shape(64, 32, 6, CUDA_ARRAY3D_CUBEMAP)},
      {"cubemap_layered", Shape(64, 64, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED)},
      {"cubemap_layered_of_eight", Shape(64, 64, 8, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED)},
      {"surface", Shape(64, 64, 0, CUDA_ARRAY3D_SURFACE_LDST)},
      {"unknown_flag", Shape(64, 64, 0, 0x8000)},
      {"3d_too_deep", Shape(64, 64, 1 << 20)},
  };
  for (const Case& one : cases) {
    CUarray array = nullptr;
    const CUresult code = cuArray3DCreate_v2(&array, &one.shape);
    facts.Code(std::string("shape.") + one.name, code);
    if (code == CUDA_SUCCESS) cuArrayDestroy(array);
  }
}

void Costs(Facts& facts) {
  struct Case {
    const char* name;
    CUDA_ARRAY3D_DESCRIPTOR shape;
  };
  const Case cases[] = {
      {"4MiB_2d", Shape(1024, 1024, 0)},  {"64MiB_2d", Shape(4096, 4096, 0)},
      {"odd_2d", Shape(1000, 1000, 0)},   {"odd_3d", Shape(100, 100, 100)},
      {"64MiB_3d", Shape(256, 256, 256)}, {"layers", Shape(512, 512, 64, CUDA_ARRAY3D_LAYERED)},
      {"1d_16KiB", Shape(4096, 0, 0)},
  };
  for (const Case& one : cases) {
    const size_t before = FreeBytes();
    CUarray array = nullptr;
    cuArray3DCreate_v2(&array, &one.shape);
    const long long taken = DroppedSince(before);
    facts.Number(std::string("cost.") + one.name, taken);
    cuArrayDestroy(array);
    facts.Number(std::string("cost.") + one.name + ".freed_leaves", DroppedSince(before));
  }
}

void Requirements(Facts& facts, CUdevice device) {
  CUarray array = nullptr;
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs{};
  CUDA_ARRAY_SPARSE_PROPERTIES sparse{};
  CUDA_ARRAY3D_DESCRIPTOR shape = Shape(1024, 1024, 0);
  cuArray3DCreate_v2(&array, &shape);
  facts.Code("requirements.plain", cuArrayGetMemoryRequirements(&needs, array, device));
  facts.Code("sparse.plain", cuArrayGetSparseProperties(&sparse, array));
  cuArrayDestroy(array);

  shape.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
  const size_t before = FreeBytes();
  facts.Code("deferred.create", cuArray3DCreate_v2(&array, &shape));
  facts.Number("deferred.takes", DroppedSince(before));
  facts.Code("requirements.deferred", cuArrayGetMemoryRequirements(&needs, array, device));
  facts.Number("requirements.deferred_bytes", static_cast<long long>(needs.size));
  facts.Number("requirements.deferred_alignment", static_cast<long long>(needs.alignment));
  facts.Code("requirements.bad_device", cuArrayGetMemoryRequirements(&needs, array, 4711));
  facts.Code("deferred.destroy", cuArrayDestroy(array));

  shape.Flags = CUDA_ARRAY3D_SPARSE;
  facts.Code("sparse.create", cuArray3DCreate_v2(&array, &shape));
  facts.Number("sparse.takes", DroppedSince(before));
  facts.Code("sparse.properties", cuArrayGetSparseProperties(&sparse, array));
  facts.Number("sparse.tile_width", sparse.tileExtent.width);
  facts.Number("sparse.tile_height", sparse.tileExtent.height);
  facts.Number("sparse.tile_depth", sparse.tileExtent.depth);
  facts.Number("sparse.mip_tail_first_level", sparse.miptailFirstLevel);
  facts.Code("sparse.destroy", cuArrayDestroy(array));
}

void Mipmaps(Facts& facts) {
  CUmipmappedArray mipmap = nullptr;
  CUarray level = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR shape = Shape(1024, 1024, 0);
  facts.Code("mipmap.no_levels", cuMipmappedArrayCreate(&mipmap, &shape, 0));
  if (mipmap != nullptr) cuMipmappedArrayDestroy(mipmap);
  const size_t before = FreeBytes();
  facts.Code("mipmap.create", cuMipmappedArrayCreate(&mipmap, &shape, 11));
  facts.Number("mipmap.takes", DroppedSince(before));
  facts.Code("mipmap.first_level", cuMipmappedArrayGetLevel(&level, mipmap, 0));
  CUDA_ARRAY3D_DESCRIPTOR back{};
  cuMipmappedArrayGetLevel(&level, mipmap, 3);
  cuArray3DGetDescriptor_v2(&back, level);
  facts.Number("mipmap.width_of_level_3", static_cast<long long>(back.Width));
  facts.Code("mipmap.last_level", cuMipmappedArrayGetLevel(&level, mipmap, 10));
  facts.Code("mipmap.beyond_last_level", cuMipmappedArrayGetLevel(&level, mipmap, 11));
  facts.Code("mipmap.destroy", cuMipmappedArrayDestroy(mipmap));
  facts.Number("mipmap.freed_leaves", DroppedSince(before));
  facts.Code("mipmap.too_many_levels", cuMipmappedArrayCreate(&mipmap, &shape, 40));
}

}  // namespace
}  // namespace conformance

int main() {
  using namespace conformance;
  Facts facts("arrays");
  const CUdevice device = FirstDevice(facts);
  UsePrimary(device);
  Plain(facts);
  Shapes(facts);
  Costs(facts);
  Requirements(facts, device);
  Mipmaps(facts);
  return 0;
}
