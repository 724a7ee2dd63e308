// The kernel that does a given amount of work and writes down when; behind spin_kernel.h's head.
//
// gpufence_work_ns(work_ns, turns, records, arrivals, capacity): every thread takes `turns` steps
// of arithmetic. That is work: where the driver gives time slices it takes longer, while a kernel
// that only reads a clock would end in time without having had the GPU. The simulator takes the
// duration from the first parameter. A string literal, like spin_kernel.h.
//
// The n-th kernel of a stream has record n: ~begin and end in nanoseconds of %globaltimer, which
// all processes of a GPU share. Both are maxima, so that zeroed memory is an empty record. Kernels
// of a stream do not overlap, hence the blocks that arrived so far, divided by those of a grid, are
// n; in the replay of a graph no parameter could tell it.
R"(
.visible .entry gpufence_work_ns(.param .u64 work_ns, .param .u64 turns, .param .u64 records,
                                 .param .u64 arrivals, .param .u64 capacity)
{
    .reg .pred %p<5>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<16>;
    ld.param.u64 %rd1, [turns];
    ld.param.u64 %rd2, [records];
    ld.param.u64 %rd3, [arrivals];
    ld.param.u64 %rd4, [capacity];
    cvta.to.global.u64 %rd2, %rd2;
    cvta.to.global.u64 %rd3, %rd3;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    setp.ne.u32 %p2, %r1, %r1;
    @%p1 bra work;
    mov.u64 %rd5, %globaltimer;
    atom.global.add.u64 %rd6, [%rd3], 1;
    mov.u32 %r2, %nctaid.x;
    cvt.u64.u32 %rd7, %r2;
    div.u64 %rd8, %rd6, %rd7;
    setp.lt.u64 %p2, %rd8, %rd4;
    shl.b64 %rd9, %rd8, 4;
    add.s64 %rd10, %rd2, %rd9;
    not.b64 %rd11, %rd5;
    @%p2 red.global.max.u64 [%rd10], %rd11;
work:
    mov.u32 %r3, %r1;
    setp.eq.u64 %p3, %rd1, 0;
    @%p3 bra done;
again:
    mad.lo.u32 %r3, %r3, 1664525, 1013904223;
    mad.lo.u32 %r3, %r3, 22695477, 12345;
    xor.b32 %r3, %r3, %r1;
    mad.lo.u32 %r3, %r3, 1103515245, 12821;
    sub.s64 %rd1, %rd1, 1;
    setp.ne.s64 %p3, %rd1, 0;
    @%p3 bra again;
done:
    setp.eq.u32 %p4, %r3, 305419896;
    @%p4 st.global.u32 [%rd3+8], %r3;
    bar.sync 0;
    @!%p2 bra end;
    mov.u64 %rd12, %globaltimer;
    red.global.max.u64 [%rd10+8], %rd12;
end:
    ret;
}
)"
