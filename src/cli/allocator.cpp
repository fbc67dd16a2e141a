// Settings of jemalloc, which reads this symbol of the program that it serves. Freed pages stay
// with the process: a training step's temporaries are hundreds of megabytes, and mapping them anew
// in every step costs a fifth of it. Large blocks may be cut from any larger free one, which saves
// a quarter of the memory. Blocks up to 256 KB, all that a decoding pass needs, wait in the
// thread's own lists. MALLOC_CONF in the environment wins.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf =
    "oversize_threshold:0,lg_extent_max_active_fit:20,dirty_decay_ms:-1,muzzy_decay_ms:-1,"
    "lg_tcache_max:18";
}
