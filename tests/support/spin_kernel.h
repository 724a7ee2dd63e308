// The head of a PTX text and the kernel that keeps one thread busy for the nanoseconds of its only
// parameter; the simulator takes its duration from the same parameter. Target and version are the
// oldest that every driver from 470 to 580 compiles.
//
// A string literal: included where one may stand, in front of the text's other kernels. Python's
// programs read what is between the lines with its brackets.
R"(
.version 7.0
.target sm_50
.address_size 64

.visible .entry gpufence_spin_ns(.param .u64 spin_ns)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [spin_ns];
    mov.u64 %rd2, %globaltimer;
again:
    mov.u64 %rd3, %globaltimer;
    sub.u64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p1, %rd4, %rd1;
    @%p1 bra again;
    ret;
}
)"
