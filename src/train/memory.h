// How a training process uses memory.
#pragma once

namespace dflash::train {

/// Keeps freed blocks in the process instead of handing them back to the system after every pass:
/// a step's temporaries are tens of megabytes, and mapping them anew costs page faults worth a
/// tenth of a step. Process-wide; does nothing where the C library has no such setting.
void keep_freed_memory();

}  // namespace dflash::train
